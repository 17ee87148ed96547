package main

import (
	"bytes"
	"crypto/sha1"
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/rs/zerolog"
)

const billType = "application/vnd.cyclonedx+json"

// bill is the bill of materials (SBOM) of a program for one platform.
type bill struct {
	// name is the file name in the folder sbom.
	name    string
	content []byte
	// artifact is an OCI artifact that contains the bill of materials. A registry lists the artifact as a referrer of
	// the image.
	artifact v1.Image
}

// bill generates the software bill of materials (SBOM) of a binary, and attaches the SBOM to the image.
func (b *build) bill(p program, platform v1.Platform, path string, image v1.Image) (bill, error) {
	result := bill{name: fmt.Sprintf("%s_%s_%s.cdx.json", p.name, platform.OS, platform.Architecture)}
	digest, err := image.Digest()
	if err != nil {
		return result, err
	}
	if result.content, err = b.materials(path, digest); err != nil {
		return result, err
	}
	result.artifact, err = b.attach(result.name, result.content, image)
	return result, err
}

// materials returns the bill of materials of a binary, which lists the binary's Go modules. The serial number is
// derived from the digest of the image or the binary.
func (b *build) materials(path string, digest v1.Hash) ([]byte, error) {
	generator, err := bin.NewGenerator(path, bin.WithLogger(zerolog.Nop()), bin.WithIncludeStdlib(true),
		bin.WithVersionOverride(b.source.version))
	if err != nil {
		return nil, err
	}
	bom, err := generator.Generate()
	if err != nil {
		return nil, fmt.Errorf("bill of materials: %w", err)
	}
	if err := b.nameOwnModules(bom, path); err != nil {
		return nil, err
	}
	properties := append(*bom.Metadata.Properties, cyclonedx.Property{Name: "cdx:gomod:build:vcs:revision",
		Value: b.source.stamp()})
	bom.Metadata.Properties = &properties
	bom.Metadata.Timestamp = b.source.time.Format(time.RFC3339)
	bom.Metadata.Tools = &cyclonedx.ToolsChoice{Components: &[]cyclonedx.Component{{
		Type: cyclonedx.ComponentTypeApplication, Name: "cyclonedx-gomod", Version: generatorVersion()}}}
	bom.SerialNumber = serialNumber(digest)
	var text bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON)
	if err := encoder.SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("bill of materials: %w", err)
	}
	return text.Bytes(), nil
}

// nameOwnModules corrects the names of this repository's modules in the bill of materials. In go.mod, these modules are
// replaced with relative folders, and the generator uses the folders as names.
func (b *build) nameOwnModules(bom *cyclonedx.BOM, path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	for _, m := range info.Deps {
		if m.Replace == nil || m.Replace.Version != "" && m.Replace.Version != "(devel)" {
			continue
		}
		for i := range *bom.Components {
			c := &(*bom.Components)[i]
			if c.Name != m.Replace.Path {
				continue
			}
			old := c.BOMRef
			c.Name, c.Version = m.Path, b.source.version
			c.PackageURL = "pkg:golang/" + m.Path + "@" + b.source.version + "?type=module"
			c.BOMRef = c.PackageURL
			replaceReference(bom, old, c.BOMRef)
		}
	}
	return nil
}

func replaceReference(bom *cyclonedx.BOM, from, to string) {
	for i, d := range *bom.Dependencies {
		if d.Ref == from {
			(*bom.Dependencies)[i].Ref = to
		}
		if d.Dependencies == nil {
			continue
		}
		for j, ref := range *d.Dependencies {
			if ref == from {
				(*d.Dependencies)[j] = to
			}
		}
	}
	for _, c := range *bom.Compositions {
		if c.Dependencies == nil {
			continue
		}
		for i, ref := range *c.Dependencies {
			if string(ref) == from {
				(*c.Dependencies)[i] = cyclonedx.BOMReference(to)
			}
		}
	}
}

// serialNumber returns a UUID of version 8 (custom), derived from a digest.
func serialNumber(digest v1.Hash) string {
	id := sha1.Sum([]byte(digest.String()))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
}

// generatorVersion returns the pinned version of the generator library. In test binaries, it is empty.
func generatorVersion() string {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, m := range info.Deps {
			if m.Path == "github.com/CycloneDX/cyclonedx-gomod" {
				return m.Version
			}
		}
	}
	return ""
}
