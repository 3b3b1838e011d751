import torch

from formers.logging import get_logger

logger = get_logger(__name__)


class PreTrainedModel(torch.nn.Module):
    def warn_if_padding_and_no_attention_mask(self, input_ids, attention_mask):
        if attention_mask is not None:
            return
        if self.pad_token_id in input_ids[:, [-1, 0]]:
            logger.warning_once("We recommend to pass an attention_mask since the inputs may be padded.")


class Attention(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = torch.nn.Linear(width, width)

    def forward(self, hidden, attention_mask=None):
        scores = self.query(hidden) @ hidden.mT
        if attention_mask is not None:
            scores = scores + attention_mask
        return scores.softmax(-1) @ hidden


class Pooler(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dense = torch.nn.Linear(width, width)

    def forward(self, hidden):
        return self.dense(hidden.mean(1)).tanh()
