package driver

import (
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
)

// The library believes what an answer says about its length: it makes room for it before it reads, and a length that is
// too small ends the process. libvirt's own limit is 32 MiB.
// https://gitlab.com/libvirt/libvirt/-/blob/master/src/rpc/virnetprotocol.x: VIR_NET_MESSAGE_MAX
const (
	minFrame = 28
	maxFrame = 32<<20 + minFrame
)

var errFrame = errors.New("an answer of libvirtd is longer than 32 MiB, or is none")

// frames is a connection on which every answer has a length that is possible.
type frames struct {
	net.Conn
	// broken is set once an answer had not.
	broken *atomic.Bool

	length [4]byte
	known  int    // how many bytes of length have been read
	left   uint32 // how many bytes of the answer have not been read, once known is 4
}

// Read implements net.Conn.
func (f *frames) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if !f.pass(p[:n]) {
		f.broken.Store(true)
		_ = f.Close()
		return 0, errFrame
	}
	return n, err
}

// pass follows the answers in what was read, and reports whether all lengths are possible.
func (f *frames) pass(data []byte) bool {
	for len(data) > 0 {
		if f.known < len(f.length) {
			n := copy(f.length[f.known:], data)
			f.known += n
			data = data[n:]
			if f.known < len(f.length) {
				return true
			}
			size := binary.BigEndian.Uint32(f.length[:])
			if size < minFrame || size > maxFrame {
				return false
			}
			f.left = size - uint32(len(f.length))
			continue
		}
		n := min(uint32(len(data)), f.left)
		data = data[n:]
		if f.left -= n; f.left == 0 {
			f.known = 0
		}
	}
	return true
}
