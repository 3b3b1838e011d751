from geometrics.nn.attention import EdgeAttention

__all__ = ["EdgeAttention"]
