// Package seed makes the disk from which cloud-init reads its data, by the data source NoCloud: a small ISO 9660 file
// system, in memory. User data is secret and is written nowhere else.
package seed

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
)

// Label is the label of the file system by which cloud-init finds it.
// https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html
const Label = "CIDATA"

// file is one of the file system's. Its name has at most 64 characters.
type file struct {
	name    string
	content []byte
}

const (
	sectorBytes = 2048
	// systemSectors are left to what boots from such a disk.
	systemSectors = 16

	primarySector = systemSectors
	jolietSector  = primarySector + 1
	endSector     = jolietSector + 1
	// tableSector is the first of four: two tables for the primary names and two for those of Joliet, a sector each.
	tableSector     = endSector + 1
	directorySector = tableSector + 4
	filesSector     = directorySector + 2
)

// image writes the files into the root of a file system. Its primary names are short and in upper case, as the standard
// has them (ECMA-119); Linux takes the names of Joliet, which are as given.
func image(files []file) []byte {
	sector, at := filesSector, make([]int, len(files))
	for i, f := range files {
		at[i] = sector
		sector += sectors(len(f.content))
	}
	disk := make([]byte, sector*sectorBytes)
	into := func(sector int) []byte { return disk[sector*sectorBytes:] }
	descriptor(into(primarySector), 1, sector, tableSector, directorySector, func(text string, bytes int) []byte {
		return padded([]byte(text), bytes, " ")
	})
	descriptor(into(jolietSector), 2, sector, tableSector+2, directorySector+1, func(text string, bytes int) []byte {
		return padded(wide(text), bytes, "\x00 ")
	})
	copy(into(jolietSector)[88:], "%/E") // UCS-2, level 3
	copy(into(endSector), "\xffCD001\x01")
	for i, root := range []int{directorySector, directorySector + 1} {
		pathTable(into(tableSector+2*i), root, binary.LittleEndian)
		pathTable(into(tableSector+2*i+1), root, binary.BigEndian)
		records := slice(root, "\x00", "\x01")
		for j, f := range files {
			name := []byte(fmt.Sprintf("%s;1", short(f.name)))
			if i == 1 {
				name = wide(f.name)
			}
			records = append(records, record(at[j], len(f.content), 0, name)...)
		}
		copy(into(root), records)
	}
	for i, f := range files {
		copy(into(at[i]), f.content)
	}
	return disk
}

// slice has the records of a root for itself and for its parent, which it is too.
func slice(root int, names ...string) (records []byte) {
	const isDirectory = 2
	for _, name := range names {
		records = append(records, record(root, sectorBytes, isDirectory, []byte(name))...)
	}
	return records
}

func sectors(bytes int) int { return (bytes + sectorBytes - 1) / sectorBytes }

// both32 is a number in both orders of bytes, as the standard wants most of them.
func both32(n int) []byte {
	return binary.BigEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(n)), uint32(n))
}

func both16(n int) []byte {
	return binary.BigEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, uint16(n)), uint16(n))
}

// wide is a text in UCS-2.
func wide(text string) (out []byte) {
	for _, c := range utf16.Encode([]rune(text)) {
		out = binary.BigEndian.AppendUint16(out, c)
	}
	return out
}

// padded is text with as many fillers as make the length.
func padded(text []byte, length int, filler string) []byte {
	out := append(bytes.Clone(text), strings.Repeat(filler, length)...)
	return out[:length]
}

// short is a primary name: eight upper-case letters, digits and underscores. The first eight letters of the names tell
// the files apart.
func short(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(name))
	return name[:min(len(name), 8)] + "."
}

// noDate is a date that is not given, long as in descriptors. Seeds of the same data are the same.
var noDate = append([]byte("0000000000000000"), 0)

// descriptor writes a volume descriptor (ECMA-119, 8.4 and 8.5).
func descriptor(into []byte, kind byte, total, table, root int, text func(string, int) []byte) {
	var b bytes.Buffer
	b.WriteByte(kind)
	b.WriteString("CD001\x01\x00")
	b.Write(text("", 32)) // the system
	b.Write(text(Label, 32))
	b.Write(make([]byte, 8))
	b.Write(both32(total))
	b.Write(make([]byte, 32)) // the escape sequences of Joliet
	b.Write(both16(1))        // volumes in the set
	b.Write(both16(1))        // the number of this one
	b.Write(both16(sectorBytes))
	b.Write(both32(pathTableBytes))
	b.Write(binary.LittleEndian.AppendUint32(nil, uint32(table)))
	b.Write(make([]byte, 4))
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(table+1)))
	b.Write(make([]byte, 4))
	b.Write(slice(root, "\x00"))
	for _, length := range []int{128, 128, 128, 128, 37, 37, 37} { // the set, publisher, preparer, application, files
		b.Write(text("", length))
	}
	for range 4 { // creation, modification, expiration, effect
		b.Write(noDate)
	}
	b.WriteByte(1) // the version of the structure
	copy(into, b.Bytes())
}

const pathTableBytes = 10

// pathTable writes a table with the root alone (ECMA-119, 9.4).
func pathTable(into []byte, root int, order binary.AppendByteOrder) {
	table := order.AppendUint32([]byte{1, 0}, uint32(root))
	table = append(order.AppendUint16(table, 1), 0, 0)
	copy(into, table)
}

// record is an entry of a directory (ECMA-119, 9.1). A record has an even length.
func record(sector, size int, flags byte, name []byte) []byte {
	var b bytes.Buffer
	b.WriteByte(0) // the length, in the end
	b.WriteByte(0)
	b.Write(both32(sector))
	b.Write(both32(size))
	b.Write([]byte{70, 1, 1, 0, 0, 0, 0}) // a date: 1970
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
