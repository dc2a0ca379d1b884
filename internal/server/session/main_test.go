package session

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if a goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
