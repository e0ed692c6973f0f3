"""Vector kernels of eigenvectors and of sums over walks, on a range of entries.

Sums run in the order of the entries, so that the bits depend on the ranges alone.
"""

from __future__ import annotations

from goffish.kernels.compile import kernel


@kernel(allocates=False)
def residual(x, image, previous, value, out, first, last):
    """``out = image - value x``; returns its products with itself, with `x` and with `previous`."""
    norm, along, back = 0.0, 0.0, 0.0
    for v in range(first, last):
        rest = image[v] - value * x[v]
        out[v] = rest
        norm += rest * rest
        along += rest * x[v]
        back += rest * previous[v]
    return norm, along, back


@kernel(allocates=False)
def products(x, previous, direction, image, first, last):
    """Products of `image` with three vectors."""
    one, two, three = 0.0, 0.0, 0.0
    for v in range(first, last):
        one += x[v] * image[v]
        two += previous[v] * image[v]
        three += direction[v] * image[v]
    return one, two, three


@kernel(allocates=False)
def advance(vectors, images, along, ahead, back, first, last):
    """Step from x: the step is ``ahead`` directions and ``back`` previous steps; x becomes ``along x`` plus the step.

    Parameters
    ----------
    vectors, images : tuple
        x, previous step and direction, and their products with the matrix. The first two are replaced.

    Returns
    -------
    tuple of float
        Products of the new x and step: x·x, x·p, p·p, x·Ax, x·Ap, p·Ap.
    """
    x, p, w = vectors
    ax, ap, aw = images
    xx, xp, pp, xax, xap, pap = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for v in range(first, last):
        step, moved = ahead * w[v] + back * p[v], ahead * aw[v] + back * ap[v]
        at, image = along * x[v] + step, along * ax[v] + moved
        x[v], ax[v], p[v], ap[v] = at, image, step, moved
        xx += at * at
        xp += at * step
        pp += step * step
        xax += at * image
        xap += at * moved
        pap += step * moved
    return xx, xp, pp, xax, xap, pap


@kernel(allocates=False)
def add_constant(out, constant, x, first, last):
    """Add a constant to all entries of `out`; returns the largest difference from `x`."""
    change = 0.0
    for v in range(first, last):
        out[v] += constant
        # Not a comparison that NaN passes: what diverges is to be seen.
        difference = abs(out[v] - x[v])
        if not difference <= change:
            change = difference
    return change
