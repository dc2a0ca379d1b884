package membership

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// memberlist's probes end by themselves, within a probe's time after Close.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { exit(code) }))
}

// exit waits for what memberlist leaves running for a while, and fails if it
// is still there then.
func exit(code int) {
	if code == 0 {
		var err error
		for range 200 {
			if err = goleak.Find(); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			println(err.Error())
			code = 1
		}
	}
	osExit(code)
}
