package etcd

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// quiet is the logger for an embedded etcd: what is worth a warning, without what etcd warns of at every start of a
// member that listens on loopback only and has no users.
func quiet(log *zap.Logger) *zap.Logger {
	return log.Named("etcd").WithOptions(zap.IncreaseLevel(zap.WarnLevel), zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return expected{c}
	}))
}

type expected struct{ zapcore.Core }

func (c expected) With(fields []zapcore.Field) zapcore.Core { return expected{c.Core.With(fields)} }

func (c expected) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	switch entry.Message {
	case "Running http and grpc server on single port. This is not recommended for production.",
		"simple token is not cryptographically signed":
		return checked
	}
	return c.Core.Check(entry, checked)
}
