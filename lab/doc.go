// Package lab boots virtual machines with real Soft-RoCE or soft-iWARP devices
// on any machine with QEMU and Debian's packages, and breaks their network.
package lab
