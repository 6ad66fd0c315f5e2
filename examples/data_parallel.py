"""Several processes train one model. Run torchrun --nproc-per-node 2 examples/data_parallel.py."""

import torch
import torch.distributed as dist

import pear


def main(max_epochs: int = 30) -> None:
    task = pear.tasks.shortest_path((5, 5))
    X, C = task.samples(500, degree=6, noise=0.0, seed=0)  # the same samples on every rank
    model = torch.nn.Linear(5, task.problem.n)  # every rank gets the weights of rank 0
    config = pear.FitConfig(batch_size=64, max_epochs=max_epochs)  # 64 samples of all ranks together
    history = pear.fit(model, pear.PEARLoss(task.problem), (X, C), config=config)
    if dist.get_rank() == 0:
        print(history)


if __name__ == "__main__":
    dist.init_process_group("gloo")  # "nccl" where every rank has a GPU, with the model on it
    main()
    dist.destroy_process_group()
