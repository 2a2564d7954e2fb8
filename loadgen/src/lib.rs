//! Open-loop load, tail experiments and the simulator's clock
