import warnings


def mse(outputs, targets):
    if outputs.shape[-1] == 1:
        warnings.warn("outputs of one column are taken as they are", stacklevel=2)
    return (outputs - targets).square().mean()
