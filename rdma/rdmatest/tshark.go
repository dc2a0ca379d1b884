package rdmatest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// NeedTshark finds tshark, or skips the test. Where RDMAKV_REQUIRE_TSHARK is 1
// it must be there: a machine that is meant to run these tests never skips them.
func NeedTshark(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("tshark")
	switch {
	case err == nil:
	case os.Getenv("RDMAKV_REQUIRE_TSHARK") == "1":
		t.Fatalf("RDMAKV_REQUIRE_TSHARK=1, but: %v (apt-get install tshark)", err)
	default:
		t.Skipf("no tshark here: %v (apt-get install tshark)", err)
	}
	return path
}

// A Dissection is what tshark made of a capture.
type Dissection struct {
	t testing.TB
	// Text is everything, as -V prints it.
	Text string
	// Rows has the requested fields of each packet that passed the filter, in
	// order. A packet with several frames has several values in a field, with
	// commas between.
	Rows []map[string]string
}

// Dissect has tshark dissect the capture with these arguments; for Rows it
// prints these fields of the packets that pass the display filter. Call it after
// Close.
func (e *Tee) Dissect(args []string, filter string, fields []string) *Dissection {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "session.pcap")
	if err := os.WriteFile(file, e.pcap, 0o600); err != nil {
		e.t.Fatal(err)
	}
	args = append([]string{"-n", "-r", file, "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"}, args...)
	d := &Dissection{t: e.t, Text: tshark(e.t, append(args, "-V"))}
	args = append(args, "-Y", filter, "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,")
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	for line := range strings.Lines(tshark(e.t, args)) {
		row := map[string]string{}
		for i, v := range strings.Split(strings.TrimRight(line, "\n"), "\t") {
			row[fields[i]] = v
		}
		d.Rows = append(d.Rows, row)
	}
	return d
}

func tshark(t testing.TB, args []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, NeedTshark(t), args...)
	// A home of its own keeps out the preferences of the user that runs the
	// tests.
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("tshark %v: %v\n%s", args, err, problems.String())
	}
	return out.String()
}

// ExpectClean demands that no dissector complains anywhere, neither about its
// own protocol nor about the TCP stream around it.
func (d *Dissection) ExpectClean() {
	d.t.Helper()
	for _, bad := range []string{"Malformed", "Bad CRC", "bad CRC", "Exception", "Unreassembled", "incorrect",
		"Retransmission", "Out-Of-Order", "Expert Info (Warning", "Expert Info (Error"} {
		if i := strings.Index(d.Text, bad); i >= 0 {
			d.t.Errorf("the dissection says %q:\n%s", bad, d.Text[max(0, i-1500):min(len(d.Text), i+500)])
		}
	}
}

// All lists every value of a field, over all packets.
func (d *Dissection) All(field string) (ns []int) {
	d.t.Helper()
	for _, row := range d.Rows {
		ns = append(ns, d.Numbers(row, field)...)
	}
	return ns
}

// Numbers lists the values of a field of one packet; flags are 0 and 1.
func (d *Dissection) Numbers(row map[string]string, field string) (ns []int) {
	d.t.Helper()
	for s := range strings.SplitSeq(row[field], ",") {
		switch s {
		case "":
		case "True":
			ns = append(ns, 1)
		case "False":
			ns = append(ns, 0)
		default:
			n, err := strconv.ParseInt(s, 0, 64)
			if err != nil {
				d.t.Fatalf("%s is %q: %v", field, row[field], err)
			}
			ns = append(ns, int(n))
		}
	}
	return ns
}
