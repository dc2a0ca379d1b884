package work

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if a worker is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
