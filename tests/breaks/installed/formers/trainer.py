from dataclasses import dataclass

import torch


@dataclass
class TrainingArguments:
    epochs: int = 1
    lr: float = 1e-2
    torch_compile: bool = False


class Trainer:
    def __init__(self, model, args, train_dataset, eval_dataset=None):
        self.model, self.args = model, args
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
        self.wrapped = torch.compile(model, backend="eager") if args.torch_compile else model

    def train(self):
        return self._inner_training_loop()

    def _inner_training_loop(self):
        for _ in range(self.args.epochs):
            self.model.train()
            for inputs in self.train_dataset:
                self.training_step(inputs)
            if self.eval_dataset:
                self.evaluate()

    def training_step(self, inputs):
        loss = self.compute_loss(inputs)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def compute_loss(self, inputs):
        return self.wrapped(**inputs)

    def evaluate(self):
        self.model.eval()
        with torch.no_grad():
            return [self.compute_loss(inputs) for inputs in self.eval_dataset]
