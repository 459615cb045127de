package cli

import (
	"io"
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logLevels are the values of --log-level.
var logLevels = []string{"debug", "info", "warn", "error"}

// logger writes JSON lines.
func logger(w io.Writer, level string) *zap.Logger {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		l = zapcore.InfoLevel
	}
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime = func(t time.Time, e zapcore.PrimitiveArrayEncoder) {
		e.AppendString(t.UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	cfg.EncodeDuration = zapcore.StringDurationEncoder
	out := zapcore.Lock(zapcore.AddSync(w))
	if f, ok := w.(*os.File); ok {
		out = zapcore.Lock(f)
	}
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(cfg), out, l))
}
