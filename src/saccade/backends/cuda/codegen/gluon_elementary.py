"""The functions of `elementary` for text that is Gluon."""

from triton.experimental import gluon

from saccade.backends.cuda.codegen import elementary

relu = gluon.jit(elementary.relu.fn)
sigmoid = gluon.jit(elementary.sigmoid.fn)
tanh = gluon.jit(elementary.tanh.fn)
