"""The models that walks run, as code for an interpreter in a copy of the tree."""

MODELS = '''
import json, os, sys
import numpy as np
import onnx, onnx.parser
import saccade

def model(body):
    """One output y over the input x; `Cube` is the toy."""
    header = '<ir_version: 8, opset_import: ["" : 17, "org.example" : 1]>'
    text = f"{header} g (float[N, 3, H, W] x) => (float y) {{ {body} }}"
    return onnx.parser.parse_model(text).SerializeToString()

def image(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)

def say(**found):
    print(json.dumps(found))
'''
