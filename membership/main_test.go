package membership

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain fails if goroutines are left. Ours end with Close; memberlist's
// probes end by themselves, after a probe's time, and on a starved machine
// that is some seconds: the wait ends when they have.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		var err error
		for range 300 {
			if err = goleak.Find(); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
