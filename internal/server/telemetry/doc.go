// Package telemetry tells what a node does: metrics for Prometheus (NewCollector), the
// numbers of a space (Stats), and what an operator asks for (NodeStatus, Tenants).
//
// It reads all rooms of the node and changes nothing; only the node imports it. What it
// reads of a node and of its spaces is a Space and a Node, which the node fills anew for
// each question (Sources). It may be asked at any time after the node was made: during
// the start a Space has no store, no memory and no devices, and says so (Serving).
package telemetry
