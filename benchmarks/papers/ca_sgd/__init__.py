"""Mixed-precision CA-SGD on the problems of its paper."""
