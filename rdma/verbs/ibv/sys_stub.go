//go:build !linux || !cgo

package ibv

import (
	"errors"
	"syscall"
	"time"
)

// Without cgo, or elsewhere than on Linux, loading fails and nothing else is
// ever reached: no object exists. See sys_unsafe.go for what each does.

var errNoCgo = errors.New("this program was built without cgo, or not for Linux: build it with CGO_ENABLED=1 on a machine with gcc")

const none = syscall.ENOSYS

func sysPrepare()                                     {}
func sysLoad(int, string) (cause error, missing bool) { return errNoCgo, false }
func dupNonblock(int) (int, error)                    { return 0, none }

func sysDevices() ([]DeviceInfo, syscall.Errno) { return nil, none }
func sysOpen(string) (h handle, info DeviceInfo, asyncFD int, found bool, e syscall.Errno) {
	return 0, DeviceInfo{}, 0, false, none
}
func sysCloseDevice(handle) syscall.Errno                        { return none }
func sysQueryDevice(handle) (DeviceAttr, syscall.Errno)          { return DeviceAttr{}, none }
func sysQueryPort(handle, uint8) (PortAttr, syscall.Errno)       { return PortAttr{}, none }
func sysGIDTable(handle, int) ([]GIDEntry, []int, syscall.Errno) { return nil, nil, none }
func sysQueryPKey(handle, uint8, int) (uint16, syscall.Errno)    { return 0, none }
func sysAsyncEvent(handle) (asyncRaw, syscall.Errno)             { return asyncRaw{}, none }
func sysAllocPD(handle) (handle, syscall.Errno)                  { return 0, none }
func sysDeallocPD(handle) syscall.Errno                          { return none }
func sysRegMR(handle, uintptr, int, Access) (h handle, lkey, rkey uint32, errno syscall.Errno) {
	return 0, 0, 0, none
}
func sysDeregMR(handle) syscall.Errno                      { return none }
func sysCreateChannel(handle) (handle, int, syscall.Errno) { return 0, 0, none }
func sysDestroyChannel(handle) syscall.Errno               { return none }
func sysGetCQEvent(handle) (uint64, syscall.Errno)         { return 0, none }
func sysCompVectors(handle) int                            { return 0 }
func sysCreateCQ(handle, int, uint64, handle, int) (handle, int, syscall.Errno) {
	return 0, 0, none
}
func sysDestroyCQ(handle) syscall.Errno                                { return none }
func sysPollCQ(handle, []WC) (int, syscall.Errno)                      { return 0, none }
func sysSpinCQ(handle, []WC, time.Duration, bool) (int, syscall.Errno) { return 0, none }
func sysReqNotify(handle, bool) syscall.Errno                          { return none }
func sysCreateSRQ(handle, uint64, int, int) (h handle, wr, sge int, errno syscall.Errno) {
	return 0, 0, 0, none
}
func sysArmSRQ(handle, int) syscall.Errno              { return none }
func sysPostSRQ(handle, []RecvWR) (int, syscall.Errno) { return 0, none }
func sysDestroySRQ(handle) syscall.Errno               { return none }
func sysCreateQP(handle, *qpInitRaw) (handle, uint32, QPCap, syscall.Errno) {
	return 0, 0, QPCap{}, none
}
func sysModifyQP(handle, *QPAttr, QPAttrMask) syscall.Errno { return none }
func sysQueryQP(handle, QPAttrMask) (QPAttr, syscall.Errno) { return QPAttr{}, none }
func sysPostSend(handle, []SendWR) (int, syscall.Errno)     { return 0, none }
func sysPostRecv(handle, []RecvWR) (int, syscall.Errno)     { return 0, none }
func sysPostSendSpin(handle, []SendWR, handle, []WC, time.Duration, bool) (posted, polled int, errno syscall.Errno) {
	return 0, 0, none
}
func sysDestroyQP(handle) syscall.Errno { return none }
func sysCreateReader(qp, cq handle, yield bool, sinks []SGE) (handle, syscall.Errno) {
	return 0, none
}
func sysDestroyReader(handle) syscall.Errno { return none }
func sysRead(handle, int, uint64, uint64, uint32, uint32, time.Duration, *WC) (int, syscall.Errno) {
	return 0, none
}
func sysAwaitRead(handle, time.Duration, *WC) (int, syscall.Errno) { return 0, none }

func sysCreateEventChannel() (handle, int, syscall.Errno)         { return 0, 0, none }
func sysDestroyEventChannel(handle) syscall.Errno                 { return none }
func sysGetCMEvent(handle, uint64) (cmRaw, syscall.Errno)         { return cmRaw{}, none }
func sysCreateID(handle, uint64) (handle, syscall.Errno)          { return 0, none }
func sysDestroyID(handle) syscall.Errno                           { return none }
func sysBind(handle, sockAddr) syscall.Errno                      { return none }
func sysListen(handle, int) syscall.Errno                         { return none }
func sysAddr(handle, bool) sockAddr                               { return sockAddr{} }
func sysDevice(handle) (string, uint8)                            { return "", 0 }
func sysResolveAddr(_ handle, _, _ sockAddr, _ int) syscall.Errno { return none }
func sysResolveRoute(handle, int) syscall.Errno                   { return none }
func sysInitQPAttr(handle, QPState) (QPAttr, QPAttrMask, syscall.Errno) {
	return QPAttr{}, 0, none
}
func sysConnect(handle, *ConnParam) syscall.Errno         { return none }
func sysAccept(handle, *ConnParam) syscall.Errno          { return none }
func sysReject(handle, []byte) syscall.Errno              { return none }
func sysEstablish(handle) syscall.Errno                   { return none }
func sysDisconnect(handle) syscall.Errno                  { return none }
func sysSetOption(handle, int, int, []byte) syscall.Errno { return none }
func sysMigrate(handle, handle) syscall.Errno             { return none }
