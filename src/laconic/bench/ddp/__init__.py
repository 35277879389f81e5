"""Steps of data-parallel training, in every way to average gradients."""
