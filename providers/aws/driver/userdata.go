package driver

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"

	"machinist.dev/machinist/pkg/provider"
)

// maxUserDataBytes is the limit of the user data before it is encoded.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html
const maxUserDataBytes = 16 << 10

// encodeUserData returns the user data as EC2 expects it. The same data has the same encoding, so that a repeated
// RunInstances call has the same parameters.
func encodeUserData(data []byte, compress bool) (string, error) {
	advice := "set compressUserData, or load a part of the data from another place"
	if compress {
		var out bytes.Buffer
		w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
		if err == nil {
			_, err = w.Write(data)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			return "", provider.Errorf(provider.Internal, "compress the user data")
		}
		data, advice = out.Bytes(), "load a part of the data from another place"
	}
	if n := len(data); n > maxUserDataBytes {
		return "", provider.Errorf(provider.InvalidArgument,
			"the user data is %d bytes long, more than the %d that EC2 accepts; %s", n, maxUserDataBytes, advice)
	}
	return base64.StdEncoding.EncodeToString(data), nil
}
