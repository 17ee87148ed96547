package driver

import (
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
)

// The libvirt library does not check the length field of a message. The library allocates a buffer of the claimed
// length before it reads the message. A length that is too small crashes the process. libvirt's own limit is 32 MiB.
// https://gitlab.com/libvirt/libvirt/-/blob/master/src/rpc/virnetprotocol.x: VIR_NET_MESSAGE_MAX
const (
	minFrame = 28
	maxFrame = 32<<20 + minFrame
)

var errFrame = errors.New("an answer of libvirtd is longer than 32 MiB, or malformed")

// checkedConn fails if an answer has an impossible length.
type checkedConn struct {
	net.Conn
	// isBroken is true after a message with an impossible length.
	isBroken *atomic.Bool

	length     [4]byte
	lengthRead int    // number of bytes of length read so far
	remaining  uint32 // number of unread bytes of the answer, valid when lengthRead is 4
}

// Read implements net.Conn.
func (f *checkedConn) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if !f.check(p[:n]) {
		f.isBroken.Store(true)
		_ = f.Close()
		return 0, errFrame
	}
	return n, err
}

// check reports whether all messages in the received data have a possible length.
func (f *checkedConn) check(data []byte) bool {
	for len(data) > 0 {
		if f.lengthRead < len(f.length) {
			n := copy(f.length[f.lengthRead:], data)
			f.lengthRead += n
			data = data[n:]
			if f.lengthRead < len(f.length) {
				return true
			}
			size := binary.BigEndian.Uint32(f.length[:])
			if size < minFrame || size > maxFrame {
				return false
			}
			f.remaining = size - uint32(len(f.length))
			continue
		}
		n := min(uint32(len(data)), f.remaining)
		data = data[n:]
		if f.remaining -= n; f.remaining == 0 {
			f.lengthRead = 0
		}
	}
	return true
}
