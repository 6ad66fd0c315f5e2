"""The study that compares PEAR with common forecasters, by the money that their decisions lose."""
