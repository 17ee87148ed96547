// Package seed creates a disk for cloud-init's data source NoCloud: a small ISO 9660 file system. The disk stays in
// memory, because user data is secret and must not be written elsewhere.
package seed

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
)

// Label is the file system label that cloud-init looks for.
// https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html
const Label = "CIDATA"

// file is a file in the root directory. The name of a file has at most 64 characters.
type file struct {
	name    string
	content []byte
}

const (
	sectorBytes = 2048
	// systemSectors are reserved for boot code.
	systemSectors = 16

	primarySector = systemSectors
	jolietSector  = primarySector + 1
	endSector     = jolietSector + 1
	// tableSector is the first of four sectors with path tables: two for the primary names and two for Joliet.
	tableSector     = endSector + 1
	directorySector = tableSector + 4
	filesSector     = directorySector + 2
)

// image returns a file system with the files in its root. The primary names are short and in upper case, as ECMA-119
// requires. Linux uses the Joliet names, which are the given names.
func image(files []file) []byte {
	sector, start := filesSector, make([]int, len(files))
	for i, f := range files {
		start[i] = sector
		sector += sectors(len(f.content))
	}
	disk := make([]byte, sector*sectorBytes)
	at := func(sector int) []byte { return disk[sector*sectorBytes:] }
	descriptor(at(primarySector), 1, sector, tableSector, directorySector, func(text string, bytes int) []byte {
		return padded([]byte(text), bytes, " ")
	})
	descriptor(at(jolietSector), 2, sector, tableSector+2, directorySector+1, func(text string, bytes int) []byte {
		return padded(ucs2(text), bytes, "\x00 ")
	})
	copy(at(jolietSector)[88:], "%/E") // UCS-2, level 3
	copy(at(endSector), "\xffCD001\x01")
	for i, root := range []int{directorySector, directorySector + 1} {
		pathTable(at(tableSector+2*i), root, binary.LittleEndian)
		pathTable(at(tableSector+2*i+1), root, binary.BigEndian)
		records := rootRecords(root, "\x00", "\x01")
		for j, f := range files {
			name := []byte(fmt.Sprintf("%s;1", shortName(f.name)))
			if i == 1 {
				name = ucs2(f.name)
			}
			records = append(records, record(start[j], len(f.content), 0, name)...)
		}
		copy(at(root), records)
	}
	for i, f := range files {
		copy(at(start[i]), f.content)
	}
	return disk
}

// rootRecords returns the root directory's records for itself and its parent. In ISO 9660, the root directory is also
// its own parent.
func rootRecords(root int, names ...string) (records []byte) {
	const isDirectory = 2
	for _, name := range names {
		records = append(records, record(root, sectorBytes, isDirectory, []byte(name))...)
	}
	return records
}

func sectors(bytes int) int { return (bytes + sectorBytes - 1) / sectorBytes }

// both32 encodes a number in both byte orders, as the standard requires for most numbers.
func both32(n int) []byte {
	return binary.BigEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(n)), uint32(n))
}

func both16(n int) []byte {
	return binary.BigEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, uint16(n)), uint16(n))
}

func ucs2(text string) (out []byte) {
	for _, c := range utf16.Encode([]rune(text)) {
		out = binary.BigEndian.AppendUint16(out, c)
	}
	return out
}

func padded(text []byte, length int, filler string) []byte {
	out := append(bytes.Clone(text), strings.Repeat(filler, length)...)
	return out[:length]
}

// shortName returns a primary name: up to eight upper-case letters, digits and underscores, and a dot. The primary
// names are unique, because the names of the files differ in the first eight characters.
func shortName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(name))
	return name[:min(len(name), 8)] + "."
}

// noDate means that no date is specified. Two images with the same data must be identical, so they must not contain the
// current time.
var noDate = append([]byte("0000000000000000"), 0)

// descriptor writes a volume descriptor (ECMA-119, 8.4 and 8.5).
func descriptor(into []byte, kind byte, total, table, root int, text func(string, int) []byte) {
	var b bytes.Buffer
	b.WriteByte(kind)
	b.WriteString("CD001\x01\x00")
	b.Write(text("", 32)) // system identifier
	b.Write(text(Label, 32))
	b.Write(make([]byte, 8))
	b.Write(both32(total))
	b.Write(make([]byte, 32)) // escape sequences of Joliet
	b.Write(both16(1))        // number of volumes in the set
	b.Write(both16(1))        // number of this volume
	b.Write(both16(sectorBytes))
	b.Write(both32(pathTableBytes))
	b.Write(binary.LittleEndian.AppendUint32(nil, uint32(table)))
	b.Write(make([]byte, 4))
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(table+1)))
	b.Write(make([]byte, 4))
	b.Write(rootRecords(root, "\x00"))
	for _, length := range []int{128, 128, 128, 128, 37, 37, 37} { // set, publisher, preparer, application and file identifiers
		b.Write(text("", length))
	}
	for range 4 { // creation, modification, expiration, effect
		b.Write(noDate)
	}
	b.WriteByte(1) // version of the file structure
	copy(into, b.Bytes())
}

const pathTableBytes = 10

// pathTable writes a path table with only the root (ECMA-119, 9.4).
func pathTable(into []byte, root int, order binary.AppendByteOrder) {
	table := order.AppendUint32([]byte{1, 0}, uint32(root))
	table = append(order.AppendUint16(table, 1), 0, 0)
	copy(into, table)
}

// record returns a directory record (ECMA-119, 9.1). The length of a record must be even.
func record(sector, size int, flags byte, name []byte) []byte {
	var b bytes.Buffer
	b.WriteByte(0) // length, set at the end
	b.WriteByte(0)
	b.Write(both32(sector))
	b.Write(both32(size))
	b.Write([]byte{70, 1, 1, 0, 0, 0, 0}) // date: 1970-01-01
	b.WriteByte(flags)
	b.Write([]byte{0, 0})
	b.Write(both16(1))
	b.WriteByte(byte(len(name)))
	b.Write(name)
	if b.Len()%2 == 1 {
		b.WriteByte(0)
	}
	out := b.Bytes()
	out[0] = byte(len(out))
	return out
}
