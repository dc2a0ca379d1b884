package linear

// For tests outside the package: those of packages that use it.

type FaultCounts = faultCounts

var AddTotal = addTotal

func Flags() (seed uint64, ops, seconds int, dir string) {
	return *seedFlag, *opsFlag, *secondsFlag, outDir()
}
