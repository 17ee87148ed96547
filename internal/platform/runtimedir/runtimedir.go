// Package runtimedir finds a user's folder for the files of running programs.
package runtimedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Folder returns the path of the folder, and creates it if necessary. If $XDG_RUNTIME_DIR belongs to this user, the
// result is its subfolder machinist. Otherwise, the result is the subfolder machinist-UID of the folder for temporary
// files. Every user may create files there, so Folder returns an error if machinist-UID belongs to another user, or
// if other users may use it.
func Folder() (string, error) {
	return folder(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir())
}

func folder(runtime, temporary string) (string, error) {
	path := filepath.Join(temporary, fmt.Sprintf("machinist-%d", os.Getuid()))
	if filepath.IsAbs(runtime) && private(runtime) == nil {
		path = filepath.Join(runtime, "machinist")
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("create the folder for files of running programs: %w", err)
	}
	if err := private(path); err != nil {
		return "", fmt.Errorf("the folder for files of running programs cannot be used: %w", err)
	}
	return path, nil
}

// private returns an error unless the path is a folder that only this user may access. A link to such a folder is an
// error too.
func private(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder: remove it", path)
	case !owned(info):
		return fmt.Errorf("%s belongs to another user", path)
	case info.Mode().Perm()&0o077 != 0 && hasModes:
		return fmt.Errorf("%s has mode %v, with which other users may use it: set mode 0700", path, info.Mode().Perm())
	}
	return nil
}
