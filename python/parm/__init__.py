"""parm: several copies of a model server behind one address, with slow and dead ones hidden.

The functions here run the program `parm` of the same package, and give its reports as dictionaries that notebooks draw.

    import parm
    service = parm.serve("app:app", replicas=4)      # an ASGI application, such as FastAPI's
    service = parm.serve(function, replicas=4)       # a function of numpy arrays
    parm.load(service, model="function", rate=50)    # its tail latency
"""

from ._command import ParmError, binary
from ._report import Report
from ._reports import demo, load, simulate, stand_in
from ._service import Service, serve

__all__ = ["ParmError", "Report", "Service", "binary", "demo", "load", "serve", "simulate", "stand_in"]
