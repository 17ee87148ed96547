package faulty

import (
	"encoding/binary"
	"errors"
	"io"
)

// These constants are the numbers of procedures in libvirt's protocol, for the field Match of a Rule.
// https://gitlab.com/libvirt/libvirt/-/blob/master/src/remote/remote_protocol.x
const (
	DomainCreateXML         uint32 = 10
	StorageVolCreateXML     uint32 = 93
	StorageVolDelete        uint32 = 94
	StorageVolUpload        uint32 = 208
	DomainUndefineFlags     uint32 = 231
	DomainDestroyFlags      uint32 = 234
	DomainSetMetadata       uint32 = 264
	DomainDefineXMLFlags    uint32 = 350
	DomainSetAutostart      uint32 = 29
	DomainShutdown          uint32 = 33
	DomainCreate            uint32 = 9
	DomainManagedSaveRemove uint32 = 184

	DomainInterfaceAddresses uint32 = 353
)

// IsChange reports whether a procedure changes the state of the hypervisor. For procedures that open a stream, the
// result is false.
func IsChange(procedure uint32) bool {
	switch procedure {
	case DomainCreateXML, StorageVolCreateXML, StorageVolDelete, DomainUndefineFlags, DomainDestroyFlags, DomainSetMetadata,
		DomainDefineXMLFlags, DomainSetAutostart, DomainShutdown, DomainCreate, DomainManagedSaveRemove:
		return true
	}
	return false
}

// These are libvirt's error numbers.
const (
	ErrInternal         uint32 = 1
	ErrRPC              uint32 = 39
	ErrAuthFailed       uint32 = 45
	ErrOperationInvalid uint32 = 55
	ErrAccessDenied     uint32 = 88
)

const (
	lengthBytes = 4
	headerBytes = 28 // size of the header, including the length field

	typeCall   = 0
	typeReply  = 1
	typeStream = 3

	statusOK = 0
)

// frame is a message of libvirt's protocol, including its length.
type frame []byte

func (f frame) procedure() uint32 { return binary.BigEndian.Uint32(f[12:]) }
func (f frame) kind() uint32      { return binary.BigEndian.Uint32(f[16:]) }
func (f frame) serial() uint32    { return binary.BigEndian.Uint32(f[20:]) }
func (f frame) status() uint32    { return binary.BigEndian.Uint32(f[24:]) }

func (f frame) success(kind uint32) frame {
	answer := append(frame{}, f[:headerBytes]...)
	binary.BigEndian.PutUint32(answer, headerBytes)
	binary.BigEndian.PutUint32(answer[16:], kind)
	binary.BigEndian.PutUint32(answer[24:], statusOK)
	return answer
}

// successWith returns a successful answer with the given content.
func (f frame) successWith(content []byte) frame {
	answer := append(f.success(typeReply), content...)
	binary.BigEndian.PutUint32(answer, uint32(len(answer)))
	return answer
}

// InterfacesWith returns the content of an answer to DomainInterfaceAddresses. Each hardware address becomes an
// interface with the given IP address.
func InterfacesWith(address string, macs ...string) []byte {
	var content []byte
	number := func(n int) { content = binary.BigEndian.AppendUint32(content, uint32(n)) }
	text := func(s string) {
		number(len(s))
		content = append(content, s...)
		content = append(content, make([]byte, (4-len(s)%4)%4)...)
	}
	number(len(macs))
	for _, mac := range macs {
		text("eth0")
		number(1) // The hardware address is known.
		text(mac)
		number(1)
		number(0) // IPv4
		text(address)
		number(24)
	}
	return content
}

func readFrame(r io.Reader) (frame, error) {
	f := make(frame, headerBytes)
	if _, err := io.ReadFull(r, f); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(f)
	if size < headerBytes || size > 64<<20 {
		return nil, errors.New("a message of libvirt has an impossible length")
	}
	f = append(f, make(frame, size-headerBytes)...)
	_, err := io.ReadFull(r, f[headerBytes:])
	return f, err
}

// Refusal is an answer with an error.
type Refusal struct {
	Number  uint32
	Message string
}

func (r Refusal) replyTo(call frame) frame {
	const failed, level, fieldsAfter = 1, 2, 7
	f := append(frame{}, call[:headerBytes]...)
	number := func(n uint32) { f = binary.BigEndian.AppendUint32(f, n) }
	number(r.Number)
	number(0) // error domain
	number(1) // A message follows.
	number(uint32(len(r.Message)))
	f = append(f, r.Message...)
	f = append(f, make(frame, (4-len(r.Message)%4)%4)...)
	number(level)
	for range fieldsAfter {
		number(0)
	}
	binary.BigEndian.PutUint32(f, uint32(len(f)))
	binary.BigEndian.PutUint32(f[16:], typeReply)
	binary.BigEndian.PutUint32(f[24:], failed)
	return f
}
