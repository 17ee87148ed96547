package main

import (
	"encoding/json"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// artifact is a file that a registry stores as an image without a configuration. The type implements
// partial.CompressedImageCore.
type artifact struct {
	manifest []byte
	blobs    map[v1.Hash]v1.Layer
}

var emptyConfig = []byte("{}")

// attach creates the artifact of a bill of materials. The subject of the artifact is the image.
func (b *build) attach(title string, content []byte, image v1.Image) (v1.Image, error) {
	subject, err := partial.Descriptor(image)
	if err != nil {
		return nil, err
	}
	a := &artifact{blobs: map[v1.Hash]v1.Layer{}}
	config, err := a.add(emptyConfig, "application/vnd.oci.empty.v1+json")
	if err != nil {
		return nil, err
	}
	layer, err := a.add(content, billType)
	if err != nil {
		return nil, err
	}
	layer.Annotations = map[string]string{keyTitle: title}
	a.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: billType,
		Config: config, Layers: []v1.Descriptor{layer},
		Subject:     &v1.Descriptor{MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest},
		Annotations: map[string]string{keyTitle: title, keyPrefix + "created": b.source.time.Format(time.RFC3339)},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(a)
}

func (a *artifact) add(content []byte, media types.MediaType) (v1.Descriptor, error) {
	blob := static.NewLayer(content, media)
	descriptor, err := partial.Descriptor(blob)
	if err != nil {
		return v1.Descriptor{}, err
	}
	a.blobs[descriptor.Digest] = blob
	return *descriptor, nil
}

// MediaType implements partial.ImageCore.
func (a *artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawConfigFile implements partial.ImageCore.
func (a *artifact) RawConfigFile() ([]byte, error) { return emptyConfig, nil }

// RawManifest implements partial.CompressedImageCore.
func (a *artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (a *artifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	if blob := a.blobs[digest]; blob != nil {
		return blob, nil
	}
	return nil, fmt.Errorf("the artifact has no blob %s", digest)
}
