// Package perflab holds the store's latency and rate against perftest's, in the
// same guest with Soft-RoCE, in the same run, in turns, so that whatever else
// the machine does meets both. It reports; it fails only when something cannot
// be measured, never because of a figure.
//
// TestBesidePerftest and TestLabBench measure times. TestLabCount runs in a guest
// whose clock counts instructions, so it measures those; "make lab-bench" runs the
// latter two.
//
//	go build -o DIR/ ./cmd/kvserver ./cmd/kvclient
//	go test -c -o DIR/perflab.test ./test/perflab
//	bin/lab run -dir DIR -- /mnt/perflab.test -test.v -bin /mnt -out /mnt/perflab.json
//
// Flags: -rounds, -n (messages of each measurement), -addr, -device, and
// -profile DIR for CPU profiles of this end.
package perflab
