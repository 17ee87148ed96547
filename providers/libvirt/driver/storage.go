package driver

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
)

// The XML of a volume, as far as Machinist writes and reads it.
// https://libvirt.org/formatstorage.html
type (
	volumeXML struct {
		XMLName  xml.Name        `xml:"volume"`
		Name     string          `xml:"name"`
		Capacity sizeXML         `xml:"capacity"`
		Target   volumeTargetXML `xml:"target"`
		Backing  *backingXML     `xml:"backingStore"`
	}
	sizeXML struct {
		Unit  string `xml:"unit,attr"`
		Bytes uint64 `xml:",chardata"`
	}
	volumeTargetXML struct {
		Path       string         `xml:"path,omitempty"`
		Format     formatXML      `xml:"format"`
		Timestamps *timestampsXML `xml:"timestamps"`
	}
	formatXML struct {
		Type string `xml:"type,attr"`
	}
	backingXML struct {
		Path   string    `xml:"path"`
		Format formatXML `xml:"format"`
	}
	timestampsXML struct {
		Modified string `xml:"mtime"`
	}
)

// pool returns an active storage pool. A call looks for each once.
func (h *hypervisor) pool(ctx context.Context, name, field string) (libvirt.StoragePool, error) {
	if pool, known := h.known[name]; known {
		return pool, nil
	}
	attempted := "find the storage pool"
	pool, err := h.StoragePoolLookupByName(name)
	if err != nil {
		return pool, at(translate(ctx, err, attempted), field)
	}
	active, err := h.StoragePoolIsActive(pool)
	if err != nil {
		return pool, at(translate(ctx, err, attempted), field)
	}
	if active == 0 {
		e := provider.Errorf(provider.FailedPrecondition, "%s: it is not active", attempted)
		e.Field = field
		return pool, e
	}
	h.known[name] = pool
	return pool, nil
}

// find returns a volume of a pool with its description.
func (h *hypervisor) find(pool libvirt.StoragePool, name string) (libvirt.StorageVol, volumeXML, error) {
	v, err := h.StorageVolLookupByName(pool, name)
	if err != nil {
		return v, volumeXML{}, err
	}
	text, err := h.StorageVolGetXMLDesc(v, 0)
	if err != nil {
		return v, volumeXML{}, err
	}
	var is volumeXML
	if err := xml.Unmarshal([]byte(text), &is); err != nil {
		return v, volumeXML{}, provider.Errorf(provider.Internal, "libvirt's description of a volume cannot be read")
	}
	return v, is, nil
}

// existing returns a volume that has to be there already, such as an image. Somebody may have copied it into the pool's
// folder: libvirt knows that only after it has read the folder again.
func (h *hypervisor) existing(ctx context.Context, poolName, poolField, name, field string) (volumeXML, error) {
	pool, err := h.pool(ctx, poolName, poolField)
	if err != nil {
		return volumeXML{}, err
	}
	_, is, err := h.find(pool, name)
	if codeOf(err) == libvirt.ErrNoStorageVol {
		if err := h.StoragePoolRefresh(pool, 0); err != nil {
			return volumeXML{}, translate(ctx, err, "read the storage pool anew")
		}
		_, is, err = h.find(pool, name)
	}
	if err != nil {
		return volumeXML{}, at(translate(ctx, err, "find the volume"), field)
	}
	return is, nil
}

// ensure makes a volume, or takes the one that an earlier call for the same attempt has made. One that differs is
// replaced: no domain uses it, because there is none of that attempt.
func (h *hypervisor) ensure(ctx context.Context, pool libvirt.StoragePool, want volumeXML, field string) (libvirt.StorageVol,
	error) {
	attempted := "make a volume"
	v, is, err := h.find(pool, want.Name)
	switch {
	case err == nil && is.same(want):
		return v, nil
	case err == nil:
		if err := h.StorageVolDelete(v, 0); err != nil && !absent(err) {
			return v, translate(ctx, err, "replace a volume of an earlier attempt")
		}
	case codeOf(err) != libvirt.ErrNoStorageVol:
		return v, translate(ctx, err, attempted)
	}
	text, err := xml.Marshal(want)
	if err != nil {
		return v, provider.Errorf(provider.Internal, "%s: it cannot be described", attempted)
	}
	v, err = h.StorageVolCreateXML(pool, string(text), 0)
	if codeOf(err) == libvirt.ErrStorageVolExist || codeOf(err) != libvirt.ErrOk && has(err, "already exists") {
		// libvirt knows of a file that it had not finished only after it has read the folder again.
		if err := h.StoragePoolRefresh(pool, 0); err != nil {
			return v, translate(ctx, err, "read the storage pool anew")
		}
		return v, provider.Errorf(provider.Aborted, "%s: another call has just made it, or left its file", attempted)
	}
	return v, at(translate(ctx, err, attempted), field)
}

// same reports whether a volume is as wanted, as far as that was said.
func (v volumeXML) same(want volumeXML) bool {
	return v.Capacity.Bytes == want.Capacity.Bytes && v.Target.Format == want.Target.Format &&
		(v.Backing != nil && v.Backing.Path != "") == (want.Backing != nil) &&
		(want.Backing == nil || v.Backing.Path == want.Backing.Path)
}

// fill writes the content of a volume.
func (h *hypervisor) fill(ctx context.Context, v libvirt.StorageVol, content []byte) error {
	err := h.StorageVolUpload(v, bytes.NewReader(content), 0, uint64(len(content)), 0)
	return translate(ctx, err, "write the seed")
}

// remove deletes a volume. One that does not exist is fine, and so is one whose file was removed.
func (h *hypervisor) remove(ctx context.Context, v libvirt.StorageVol) error {
	if err := h.StorageVolDelete(v, 0); err != nil && !absent(err) {
		return translate(ctx, err, fmt.Sprintf("delete volume %.64q of pool %.64q%s", v.Name, v.Pool, inItsWords(err)))
	}
	return nil
}
