package seed_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf16"

	"machinist.dev/machinist/providers/libvirt/seed"
)

const sector = 2048

// files returns the content of each file in the root directory. The function finds the files in the same way as
// Linux. The kind of the descriptor is 1 for primary names and 2 for Joliet names.
func files(t *testing.T, image []byte, kind byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	for at := 16 * sector; ; at += sector {
		d := image[at : at+sector]
		if string(d[1:6]) != "CD001" || d[0] == 255 {
			t.Fatalf("the image has no descriptor of kind %d", kind)
		}
		if d[0] != kind {
			continue
		}
		if total := binary.LittleEndian.Uint32(d[80:]); int(total)*sector != len(image) {
			t.Errorf("the descriptor has %d sectors, but the image has %d bytes", total, len(image))
		}
		root := d[156:190]
		start, size := binary.LittleEndian.Uint32(root[2:])*sector, binary.LittleEndian.Uint32(root[10:])
		directory := image[start : start+size]
		for n := 0; directory[0] != 0; n++ {
			record := directory[:directory[0]]
			directory = directory[directory[0]:]
			if n < 2 {
				continue // the directory itself and its parent
			}
			name := record[33 : 33+record[32]]
			text := string(name)
			if kind == 2 {
				var wide []uint16
				for i := 0; i < len(name); i += 2 {
					wide = append(wide, binary.BigEndian.Uint16(name[i:]))
				}
				text = string(utf16.Decode(wide))
			}
			from, length := binary.LittleEndian.Uint32(record[2:])*sector, binary.LittleEndian.Uint32(record[10:])
			if big := binary.BigEndian.Uint32(record[14:]); big != length {
				t.Errorf("%s: the length is %d in one byte order and %d in the other", text, length, big)
			}
			found[text] = string(image[from : from+length])
		}
		return found
	}
}

func TestImageContainsData(t *testing.T) {
	data := seed.Data{
		InstanceID: "9d3cbd0e-0000-5000-8000-000000000001", HostName: "worker-1",
		UserData:      []byte("#cloud-config\n" + strings.Repeat("# much\n", 1000)),
		NetworkConfig: "version: 2\n",
	}
	image := seed.Image(data)
	joliet := files(t, image, 2)
	var meta map[string]string
	if err := json.Unmarshal([]byte(joliet["meta-data"]), &meta); err != nil {
		t.Fatal(err)
	}
	if meta["instance-id"] != data.InstanceID || meta["local-hostname"] != data.HostName || len(meta) != 2 {
		t.Errorf("got the meta-data %v", meta)
	}
	if joliet["user-data"] != string(data.UserData) || joliet["network-config"] != data.NetworkConfig || len(joliet) != 3 {
		t.Errorf("got the Joliet files %q", joliet)
	}
	primary := files(t, image, 1)
	if primary["USER_DAT.;1"] != string(data.UserData) || len(primary) != 3 {
		t.Errorf("got the primary files %q", primary)
	}
	for _, at := range []int{16, 17} {
		label := string(image[at*sector+40 : at*sector+72])
		if !strings.Contains(strings.ReplaceAll(label, "\x00", ""), seed.Label) {
			t.Errorf("sector %d: got the label %q, want %q", at, label, seed.Label)
		}
	}
}

// A retried Create in the same attempt must write the same seed.
func TestImageIsDeterministic(t *testing.T) {
	data := seed.Data{InstanceID: "one", HostName: "worker", UserData: []byte("#!/bin/sh\n")}
	if !bytes.Equal(seed.Image(data), seed.Image(data)) {
		t.Error("two images with the same data differ")
	}
	if _, found := files(t, seed.Image(data), 2)["network-config"]; found {
		t.Error("the image has a network-config although none was given")
	}
}
