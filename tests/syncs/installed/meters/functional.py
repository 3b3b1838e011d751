def count_correct(preds, target):
    hits = preds.argmax(dim=1) == target
    return hits.sum().item()
