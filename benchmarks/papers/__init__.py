"""What the papers print, as plain as they print it: one node, row or column at
a time. The tests hold us to it, and the benchmarks say how much slower it is.
"""
