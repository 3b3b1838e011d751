"""A graph network takes the lowest message of each node's neighbours and pools each graph by its highest node."""

import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter


class LowestConv(MessagePassing):
    def __init__(self, width_in, width_out):
        super().__init__(aggr="min")
        self.mix = nn.Linear(2 * width_in, width_out)

    def forward(self, x, edge_index):
        return self.mix(torch.cat([x, self.propagate(edge_index, x=x)], dim=-1))

    def message(self, x_j):
        return torch.sigmoid(x_j)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = LowestConv(5, 16), LowestConv(16, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, x, edge_index, batch):
        x = torch.relu(self.first(x, edge_index))
        x = torch.relu(self.second(x, edge_index))
        return self.out(scatter(x, batch, dim=0, reduce="max"))


def graph(nodes=9, edges=20):
    return Data(x=torch.randn(nodes, 5), edge_index=torch.randint(0, nodes, (2, edges)))


torch.manual_seed(4)
batches = [Batch.from_data_list([graph() for _ in range(8)]) for _ in range(5)]
net = Net()
compiled = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
turn = 0


def step():
    global turn
    batch = batches[turn % len(batches)]
    turn += 1
    scores = compiled(batch.x, batch.edge_index, batch.batch)
    loss = nn.functional.cross_entropy(scores, torch.arange(8) % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
