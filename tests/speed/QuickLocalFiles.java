import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local file system; it sets permissions itself, where Hadoop's runs `chmod` for every file and folder. */
public class QuickLocalFiles extends LocalFileSystem {
  public QuickLocalFiles() {
    super(new RawLocalFileSystem() {
      @Override
      public void setPermission(Path path, FsPermission mode) throws IOException {
        String symbols = mode.getUserAction().SYMBOL + mode.getGroupAction().SYMBOL + mode.getOtherAction().SYMBOL;
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(symbols));
      }
    });
  }
}
