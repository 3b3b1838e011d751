"""Train a TransE on the Nations graph that pykeen ships, with pykeen's loop and a compiled score function."""

import torch
from pykeen.datasets import Nations
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import TransE
from pykeen.training import SLCWATrainingLoop

dataset = Nations()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = TransE(triples_factory=dataset.training, embedding_dim=8, random_seed=1).to(device)
model.score_hrt = torch.compile(model.score_hrt, backend="eager")
optimizer = torch.optim.Adam(params=model.parameters(), lr=0.01)
training_loop = SLCWATrainingLoop(model=model, triples_factory=dataset.training, optimizer=optimizer)
losses = training_loop.train(
    triples_factory=dataset.training, num_epochs=2, batch_size=256, use_tqdm=False, checkpoint_name=None
)
print("loss", losses)
evaluator = RankBasedEvaluator(filtered=True)
results = evaluator.evaluate(
    model=model,
    mapped_triples=dataset.testing.mapped_triples,
    batch_size=64,
    use_tqdm=False,
    additional_filter_triples=[dataset.training.mapped_triples, dataset.validation.mapped_triples],
)
print("hits@10", results.get_metric("hits@10"))
