// Package doctor runs kvclient doctor as people do, beside real nodes, on
// set-ups that are broken in one way each: the way must be named, by its code,
// and nothing else. What needs files of a machine that this is not is tested in
// internal/doctor; what needs an RDMA device runs in the lab (TestDevice).
package doctor
