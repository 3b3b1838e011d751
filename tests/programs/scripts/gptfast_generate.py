"""Decode with a static key-value cache and a compiled decode step, in the manner of gpt-fast."""

import time

import torch
import torch.nn as nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = "inductor" if device == "cuda" else "eager"
dim, heads, layers, vocab, max_seq_length = 32, 2, 2, 64, 40


class KVCache(nn.Module):
    def __init__(self, max_batch_size):
        super().__init__()
        shape = (max_batch_size, heads, max_seq_length, dim // heads)
        self.register_buffer("k_cache", torch.zeros(shape))
        self.register_buffer("v_cache", torch.zeros(shape))

    def update(self, input_pos, k_val, v_val):
        assert input_pos.shape[0] == k_val.shape[2]
        self.k_cache[:, :, input_pos] = k_val
        self.v_cache[:, :, input_pos] = v_val
        return self.k_cache, self.v_cache


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.kv_cache = KVCache(1)

    def forward(self, x, mask, input_pos):
        bsz, seqlen, _ = x.shape
        q, k, v = self.wqkv(x).split(dim, dim=-1)
        q, k, v = (t.view(bsz, seqlen, heads, dim // heads).transpose(1, 2) for t in (q, k, v))
        k, v = self.kv_cache.update(input_pos, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.wo(y.transpose(1, 2).contiguous().view(bsz, seqlen, dim))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.attentions = nn.ModuleList([Attention() for _ in range(layers)])
        self.norms = nn.ModuleList([nn.RMSNorm(dim) for _ in range(layers)])
        self.output = nn.Linear(dim, vocab, bias=False)
        self.register_buffer("causal_mask", torch.tril(torch.ones(max_seq_length, max_seq_length, dtype=torch.bool)))

    def forward(self, idx, input_pos):
        mask = self.causal_mask[None, None, input_pos]
        x = self.tok_embeddings(idx)
        for norm, attention in zip(self.norms, self.attentions, strict=True):
            x = x + attention(norm(x), mask, input_pos)
        return self.output(x)


def multinomial_sample_one_no_sync(probs_sort):
    q = torch.empty_like(probs_sort).exponential_(1)
    return torch.argmax(probs_sort / q, dim=-1, keepdim=True).to(dtype=torch.int)


def logits_to_probs(logits, temperature=1.0, top_k=None):
    logits = logits / max(temperature, 1e-5)
    if top_k is not None:
        v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
        pivot = v.select(-1, -1).unsqueeze(-1)
        logits = torch.where(logits < pivot, -float("Inf"), logits)
    return F.softmax(logits, dim=-1)


def sample(logits, temperature=1.0, top_k=None):
    probs = logits_to_probs(logits[0, -1], temperature, top_k)
    return multinomial_sample_one_no_sync(probs), probs


def prefill(model, x, input_pos, **sampling_kwargs):
    logits = model(x, input_pos)
    return sample(logits, **sampling_kwargs)[0]


def decode_one_token(model, x, input_pos, **sampling_kwargs):
    assert input_pos.shape[-1] == 1
    logits = model(x, input_pos)
    return sample(logits, **sampling_kwargs)


def decode_n_tokens(model, cur_token, input_pos, num_new_tokens, **sampling_kwargs):
    new_tokens = []
    for _ in range(num_new_tokens):
        next_token, _ = decode_one_token(model, cur_token, input_pos, **sampling_kwargs)
        input_pos += 1
        new_tokens.append(next_token.clone())
        cur_token = next_token.view(1, -1).clone()
    return new_tokens


@torch.no_grad()
def generate(model, prompt, max_new_tokens, **sampling_kwargs):
    T = prompt.size(-1)
    seq = torch.empty(1, T + max_new_tokens, dtype=prompt.dtype, device=prompt.device)
    seq[:, :T] = prompt
    input_pos = torch.arange(0, T, device=prompt.device)
    next_token = prefill(model, prompt.view(1, -1), input_pos, **sampling_kwargs).clone()
    seq[:, T] = next_token.squeeze()
    input_pos = torch.tensor([T], device=prompt.device, dtype=torch.int)
    tokens = decode_n_tokens(model, next_token.view(1, -1), input_pos, max_new_tokens - 1, **sampling_kwargs)
    seq[:, T + 1 :] = torch.cat(tokens, dim=-1)
    return seq


torch.manual_seed(1234)
model = Transformer().to(device).eval()
decode_one_token = torch.compile(decode_one_token, backend=backend, fullgraph=True)
prompt = torch.randint(0, vocab, (8,), device=device, dtype=torch.int)
for i in range(-1, 2):
    t0 = time.perf_counter()
    y = generate(model, prompt, 20, temperature=0.8, top_k=20)
    if i == -1:
        print(f"Compilation time: {time.perf_counter() - t0:.2f} seconds")
        continue
    print(f"Time for inference {i + 1}: {20 / (time.perf_counter() - t0):.2f} tokens/sec", y.shape)
