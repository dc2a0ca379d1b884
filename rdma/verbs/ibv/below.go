package ibv

// GIDsBelow reads the GID table of a port as the kernel shows it in dir, which
// is /sys/class/infiniband or a copy of it, without opening the device: for
// looking at a machine whose devices cannot be opened.
func GIDsBelow(dir, dev string, port uint8, link LinkLayer) ([]GIDEntry, error) {
	return sysfsGIDs(dir, dev, port, link)
}
