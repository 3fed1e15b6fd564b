"""The openb trace of Alibaba's GPU cluster, replayed through the framework under different placement policies."""
