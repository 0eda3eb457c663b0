"""Graphs without privacy: pairs of nodes, sparse matrices, hops, and edges in
whatever form PyG has them.
"""
