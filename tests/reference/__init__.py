"""An independent double-precision reference of what Muonium computes.

It is written from the formulas alone, shares no code with the library, and
favours being obviously right over being fast. Read in this order:

    rounding       storage types: f64, f32, bf16, f16
    coefficients   Polar Express generator, presets, choice of a table
    orthogonalize  normalisation and the iteration on one matrix
    layouts        tensor <-> list of (out, in) matrices
    recipes        options, the named recipes, validation, routing
    optimizer      momentum, decay, scale, NorMuon, AdamW, NAdamW, the step
    trajectory     reproducible inputs and whole runs of the optimizer
    checks         what the tests of the reference share
"""
