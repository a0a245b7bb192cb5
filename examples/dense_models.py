"""Three small models for `dense.py`: a perceptron, a residual network and a recurrent one.

Letters in shapes: N examples, C channels, H and W pixels, T characters of a chunk.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

MODELS = ("mlp", "resnet20", "lstm")


def make_model(name: str, input_shape: tuple[int, ...], num_classes: int, width: int) -> nn.Module:
    """Make a model with fresh weights from torch's global generator.

    Args:
        name: One of `MODELS`.
        input_shape: Of one example: (C, H, W) for images, (T,) for text.
        num_classes: Of images, or distinct characters of a text.
        width: Hidden units of mlp and lstm, channels of resnet20's first stage.

    Raises:
        ValueError: If there is no model of this name.
    """
    if name == "mlp":
        return MLP(input_shape, num_classes, width)
    if name == "resnet20":
        return ResNet20(input_shape, num_classes, width)
    if name == "lstm":
        return CharacterLSTM(num_classes, width)
    message = f"make_model: expected one of {MODELS} for 'name', got {name!r}. Choose one of them."
    raise ValueError(message)


class MLP(nn.Sequential):
    """Two hidden layers on flattened images. [N, C, H, W] to [N, num_classes]."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, width: int) -> None:
        channels, height, image_width = input_shape
        super().__init__(
            nn.Flatten(),
            nn.Linear(channels * height * image_width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, num_classes),
        )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return features. [N, C, H, W] to [N, channels_out, ceil(H/stride), ceil(W/stride)]."""
        out = functional.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        return functional.relu(out + self.shortcut(x))


class ResNet20(nn.Module):
    """The 20 layers of He et al. (CVPR 2016, section 4.2), of any width and image size.

    Images of more than 16 pixels are halved by the first convolution, which makes a step on a CPU
    four times as fast.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, width: int) -> None:
        super().__init__()
        channels, *pixels = input_shape
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 3, 2 if max(pixels) > 16 else 1, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        widths = (width, width, 2 * width, 4 * width)
        blocks = [
            ResidualBlock(
                widths[stage if block == 0 else stage + 1],
                widths[stage + 1],
                stride=2 if stage > 0 and block == 0 else 1,
            )
            for stage in range(3)
            for block in range(3)
        ]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(4 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores. [N, C, H, W] to [N, num_classes]."""
        features: Tensor = self.blocks(self.stem(x))  # [N, 4 * width, H/4, W/4]
        scores: Tensor = self.head(features.mean(dim=(2, 3)))
        return scores


class CharacterLSTM(nn.Module):
    """Predict the next character. Each chunk starts from a zero state."""

    def __init__(self, num_characters: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_characters, width // 2)
        self.lstm = nn.LSTM(width // 2, width, batch_first=True)
        self.head = nn.Linear(width, num_characters)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of each next character. [N, T], int64, to [N, T, num_characters]."""
        hidden, _ = self.lstm(self.embedding(x))  # [N, T, width]
        scores: Tensor = self.head(hidden)
        return scores
