"""``pear.walk_forward``: forecasters compared by what their decisions cost over time."""
