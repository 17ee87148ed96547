package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

// release gives access to the folder that the step build creates. The fields are stored in the folder.
type release struct {
	folder string
	// Tag is the version with a leading v.
	Tag string `json:"tag"`
	// Commit is the hash of the commit that has the tag. Time is the time of this commit.
	Commit string    `json:"commit"`
	Time   time.Time `json:"time"`
	// Registry is the registry of the images and charts, with a prefix.
	Registry string `json:"registry"`
	// Repository is the URL of the repository for users, in the layout of GitHub.
	Repository string `json:"repository"`
}

// These are names in the folder of a release.
const (
	descriptionFile = "release.json"
	notesFile       = "notes.md"
	imagesFolder    = "images"   // the layout of the images
	chartsFolder    = "charts"   // the packaged charts
	binariesFolder  = "binaries" // the programs for the archives
	filesFolder     = "files"    // the files that users download
)

// These files are in the folder filesFolder. The signed checksums cover all other files, including the digests of
// images and charts.
const (
	checksumsFile = "checksums.txt"
	signatureFile = "checksums.txt.sigstore.json"
	digestsFile   = "digests.txt"
	krewFile      = "krew-machinist.yaml"
)

// version returns the chart version, which has no leading v.
func (r *release) version() string { return strings.TrimPrefix(r.Tag, "v") }

func (r *release) path(elements ...string) string {
	return filepath.Join(append([]string{r.folder}, elements...)...)
}

func (r *release) file(name string) string { return r.path(filesFolder, name) }

// downloads returns the URL under which users can download the files of the release.
func (r *release) downloads() string { return r.Repository + "/releases/download/" + r.Tag }

func (r *release) image(program string) (name.Repository, error) {
	return name.NewRepository(r.Registry+"/"+program, name.StrictValidation)
}

// chart returns the repository of a chart. The method adds a prefix, because a chart and an image have the same name,
// "machinist".
func (r *release) chart(chart string) (name.Repository, error) {
	return name.NewRepository(r.Registry+"/charts/"+chart, name.StrictValidation)
}

func load(folder string) (*release, error) {
	text, err := os.ReadFile(filepath.Join(folder, descriptionFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s contains no release: run `release build` first", folder)
	}
	if err != nil {
		return nil, err
	}
	r := &release{folder: folder}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, descriptionFile), err)
	}
	return r, nil
}

// create replaces an earlier release in the same folder.
func (r *release) create() error {
	entries, err := os.ReadDir(r.folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		if _, err := os.Stat(r.path(descriptionFile)); err != nil {
			return fmt.Errorf("%s does not contain a release, and was not replaced", r.folder)
		}
	}
	if err := os.RemoveAll(r.folder); err != nil {
		return err
	}
	for _, folder := range []string{chartsFolder, filesFolder} {
		if err := os.MkdirAll(r.path(folder), 0o755); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(descriptionFile), append(text, '\n'), 0o644)
}
