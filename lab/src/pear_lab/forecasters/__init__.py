"""The study of forecasters: PEAR is compared with common forecasters by the money that their decisions lose."""
