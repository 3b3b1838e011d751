from meters.functional import count_correct


class Accuracy:
    def __init__(self):
        self.correct, self.total = 0, 0

    def update(self, preds, target):
        self.correct += count_correct(preds, target)
        self.total += target.numel()

    def compute(self):
        return self.correct / self.total
