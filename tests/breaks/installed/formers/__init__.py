from formers.modeling import PreTrainedModel
from formers.trainer import Trainer, TrainingArguments

__all__ = ["PreTrainedModel", "Trainer", "TrainingArguments"]
