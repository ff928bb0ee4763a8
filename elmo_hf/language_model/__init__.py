"""The two language models that pretrain an ELMo, and scoring with them.

Importing this package gives `WordSoftmax` its loss of bounded memory; a saved folder has autograd's instead.
"""

from .full_cross_entropy import cross_entropy
from .softmax import WordSoftmax

WordSoftmax.cross_entropy = staticmethod(cross_entropy)
